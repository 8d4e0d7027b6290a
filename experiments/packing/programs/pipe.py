import os
a, b = os.pipe(), os.pipe()
n = 40000
if os.fork() == 0:
    for i in range(n): os.write(b[1], os.read(a[0], 1))
    os._exit(0)
for i in range(n): os.write(a[1], b"x"); os.read(b[0], 1)
os.wait()
