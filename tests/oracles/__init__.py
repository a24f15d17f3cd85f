"""Differential tests: answers held against judges that nobody here wrote, on inputs that nobody here chose.

A module per kind of promise. Each has a generator, which makes a whole case of one seed and nothing else, and tests
that run it on `seeds.cases`. All compare rows by `rows.same_rows`, and take what the session says as one more
input from `sessions`. A seed that failed once becomes an example by hand beside the test.
"""
