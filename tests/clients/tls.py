"""The hub behind TLS for the SDK that speaks nothing else: a certificate made now, and a relay that ends the encryption."""

import asyncio
import pathlib
import ssl
import subprocess
import threading

LONGEST_READ = 64 * 1024


class Relay:
    """Listens on a free port of this machine until the process ends; `url` is where, `certificate` its own issuer."""

    def __init__(self, port, folder):
        folder = pathlib.Path(folder)
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(self.certificate, key)
        self._port, self.url, ready = port, None, threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True).start()
        if not ready.wait(20):
            raise OSError("the TLS relay does not listen")

    async def _serve(self, ready):
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=self._context)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await server.serve_forever()

    async def _connection(self, reader, writer):
        hub_reader, hub_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(_pass_on(reader, hub_writer), _pass_on(hub_reader, writer), return_exceptions=True)


async def _pass_on(reader, writer):
    try:
        while data := await reader.read(LONGEST_READ):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
