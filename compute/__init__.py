"""What the lessons compute: formulas, policies, the engine and the service. Nothing here imports Streamlit."""
