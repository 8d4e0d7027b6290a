import multiprocessing
def f(x): return sum(range(3000))
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool: sum(pool.imap(f, range(12000), 1))
