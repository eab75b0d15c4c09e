"""The address at which a class follows its teacher. The page itself only says what happens; the browser does the rest
(app/present.js): it asks the room, and goes where the teacher is until the learner lets go."""

from __future__ import annotations

from app import views


def show(lang: str, pages: dict) -> None:
    views.header("follow", lang)
