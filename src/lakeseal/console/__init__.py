"""What a browser shows: tables, names, branches, pipelines and what happened, for `lakeseal serve` and `lakeseal ui`.

Pages are made on the server and need no build, no network and no scripts to be read; a small script renews what is
shown. Whoever serves them says who asks (`Viewer`) and what there is (`Lake`).
"""
