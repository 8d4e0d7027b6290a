import asyncio, threading, socket
n = 8000
s = socket.create_server(("127.0.0.1", 0)); port = s.getsockname()[1]
def serve():
    async def main():
        async def client(r, w):
            while (x := await r.readline()): w.write(x)
            w.close()
        server = await asyncio.start_server(client, sock=s)
        await done.wait()
    async def run():
        global done; done = asyncio.Event(); await main()
    asyncio.run(run())
threading.Thread(target=serve, daemon=True).start()
c = socket.create_connection(("127.0.0.1", port)); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for i in range(n): c.sendall(b"hello\n"); c.recv(64)
