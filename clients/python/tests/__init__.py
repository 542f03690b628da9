"""The Python client against the real server, and against servers that a test plays itself.

They are run by ``cargo test --test python_client``, which starts the server and says where it is:

``MONOLOCK_TEST_ADDR``
    A server's address.
``MONOLOCK_TEST_ADMIN_ADDR``
    Its admin API's.
``MONOLOCK_TEST_SERVER``
    The server's binary, for tests that restart one.
"""
