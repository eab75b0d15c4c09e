"""What a page still asks for after its reader turned to another one.

Streamlit makes a fragment of the page that was left in the midst of the new one: its client then takes the new page away, to stand empty
or, with nowhere to put the answer ("Bad delta path index"), to end in a white window. Nobody waits for that answer, so it is not made.
"""

from __future__ import annotations

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession

_request_rerun = AppSession.request_rerun


def pass_over() -> None:
    """From now on, in every session of this process; in the loop's own thread, as all requests of browsers are."""
    AppSession.request_rerun = request_rerun


def request_rerun(session: AppSession, state: ClientState | None) -> None:
    """In the place of Streamlit's own: a page is asked for, or a fragment of one."""
    if state and state.fragment_id and not wanted(session, state.page_script_hash):
        return
    if state and not state.fragment_id:
        session.lab_page = state.page_script_hash
    _request_rerun(session, state)


def wanted(session: AppSession, page: str) -> bool:
    """Whether a fragment of that page is one of the page asked for last. One that does not exist any more, or had only a name yet (the
    first of a session), is known by the browser under another hash: then as if it were."""
    asked = getattr(session, "lab_page", "")
    return page == asked or asked not in session._pages_manager.get_pages()
