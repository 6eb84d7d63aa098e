"""Send prepared HTTP requests and keep every byte that comes back, with its time of arrival.

This package is a program (`program.main`): a job on its standard input, one JSON object a line on
its standard output. It needs the standard library alone and any Python from 3.8 on Linux, and
imports nothing but its own modules, so that the folder can be copied to another machine and run
there. It knows nothing of tokens: parsing is somebody else's work, once the load is over.

Input:  u32 length and a JSON job, then the bytes of the requests one after the other. Then
        `go ` and twenty digits: the start in CLOCK_MONOTONIC nanoseconds. Then, if ever,
        `stop <reason>`. The end of the input means that the parent is gone: the program ends at
        once.
Job:    `host`, `port`, `tls` (https), `paced` (open loop: requests have their own times), `slots`
        (most requests in flight, 0 = any number), `preconnect` (connections that stand before the
        start), `timeout_s` (of one request), `connect_s` (of a connection, TLS included), `path`
        (the file for the streams), `plain` (`key`, `sign`, `silent`, `uncounted`, see
        `plain.Plain`; or null), `requests` (a list of index, ns after the start, length in bytes),
        `after` (the index that each of them follows, see `follow`, or -1; or nothing),
        `tell_ended` (whether `progress` has `ended`: of each answer its index, and the ns from its
        due time to its first event and to its end).
Output: `{"event": "ready"}`, `{"event": "progress", ...}` twice a second, `{"event": "end", ...}`.
        The streams go to the file at `path`, each as it ends, in the layout of `stream.HEADER`.
"""
