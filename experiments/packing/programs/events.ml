(* Two threads that hand over by events, under OCaml's one lock. *)
let there = Event.new_channel () and back = Event.new_channel ()
let items = 60000

let echo () =
  for _ = 1 to items do
    Event.sync (Event.send back (Event.sync (Event.receive there)))
  done

let () =
  let thread = Thread.create echo () in
  for i = 1 to items do
    Event.sync (Event.send there i);
    ignore (Event.sync (Event.receive back))
  done;
  Thread.join thread
