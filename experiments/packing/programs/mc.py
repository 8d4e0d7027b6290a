import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b"set k 0 0 5\r\nhello\r\n"); s.recv(64)
for i in range(int(sys.argv[2])): s.sendall(b"get k\r\n"); s.recv(256)
