import threading, queue
a, b = queue.SimpleQueue(), queue.SimpleQueue()
def echo():
    while (x := a.get()) is not None: b.put(x)
t = threading.Thread(target=echo); t.start()
for i in range(60000): a.put(i); b.get()
a.put(None); t.join()
