# Items of each program for 1.5 to 2 s on the test machine (docs/workloads.md), two threads.
items=([pipeline]=45000 [relay]=60000 [barrier]=25000 [task-queue]=130000 [fork-join]=4000 [independent]=9000 [matmul]=3000 [request-reply]=18000
    [address-space]=30000 [block-io]=22000)
