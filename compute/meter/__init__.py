"""Measures a running endpoint that speaks OpenAI's protocol, over the network and from outside, as its users meet it.

    report.py     what is measured, and the figures made of it
    answers.py    what the bytes of a streamed answer say
    wire.py       a connection that notes when its bytes came
    client.py     one request, to its end or to its error
    prompts.py    texts of about the length asked for, no two alike
    loads.py      many requests: a fixed number at a time, or at random moments
    endpoints.py  where requests may go
    served.py     for pages: a process of its own that measures; command.py is that process, and the command line
"""
