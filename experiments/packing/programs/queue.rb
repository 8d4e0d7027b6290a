# Two threads over queues, under Ruby's one lock.
there, back, items = Queue.new, Queue.new, 30_000
echo = Thread.new { items.times { back.push(there.pop) } }
items.times { |i| there.push(i); back.pop }
echo.join
