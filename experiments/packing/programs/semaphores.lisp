; Two threads over semaphores that wait by FUTEX_WAIT.
(let* ((a (sb-thread:make-semaphore))
       (b (sb-thread:make-semaphore))
       (items 50000)
       (echo (sb-thread:make-thread
              (lambda ()
                (dotimes (i items)
                  (sb-thread:wait-on-semaphore a)
                  (sb-thread:signal-semaphore b))))))
  (dotimes (i items)
    (sb-thread:signal-semaphore a)
    (sb-thread:wait-on-semaphore b))
  (sb-thread:join-thread echo))
