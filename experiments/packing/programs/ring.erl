-module(ring).
-export([run/1]).

run([N, M]) ->
    go(list_to_integer(atom_to_list(N)), list_to_integer(atom_to_list(M)) div 20),
    halt().

go(N, M) ->
    Self = self(),
    Member = fun(_, Next) -> spawn(fun() -> loop(Next) end) end,
    rounds(lists:foldl(Member, Self, lists:seq(1, N)), M).

loop(Next) ->
    receive X -> Next ! X, loop(Next) end.

rounds(_, 0) -> ok;
rounds(First, M) ->
    First ! x,
    receive x -> rounds(First, M - 1) end.
