"""One instrument on a page of its own, for tests of the frame."""

import streamlit as st

from components import frame

frame.enter("page")
st.title("page")
frame.show("roofline-placer", lang=st.query_params.get("lang", "zh"), guess=st.query_params.get("ask", ""), chip="a100-80g-sxm")
frame.show("roofline-placer", lang="en", instance=2)
