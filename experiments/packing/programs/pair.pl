use Socket; use IO::Handle; socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC); my $n = 40000; my $x;
if (fork() == 0) { for (1..$n) { sysread $b, $x, 1; syswrite $b, $x, 1 } exit 0 }
for (1..$n) { syswrite $a, "x", 1; sysread $a, $x, 1 } wait;
