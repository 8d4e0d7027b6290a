package main

import (
	"os"
	"runtime"
)

func main() {
	n := 60000
	kind := ""
	if len(os.Args) > 1 {
		kind = os.Args[1]
	}
	if kind == "pipe" {
		r1, w1, _ := os.Pipe()
		r2, w2, _ := os.Pipe()
		b := make([]byte, 1)
		c := make([]byte, 1)
		go func() {
			for {
				if _, e := r1.Read(c); e != nil {
					return
				}
				w2.Write(c)
			}
		}()
		for i := 0; i < n; i++ {
			w1.Write(b)
			r2.Read(b)
		}
		return
	}
	if kind == "free" {
		n = 1500000
	}
	a, b := make(chan int), make(chan int)
	go func() {
		if kind == "" {
			runtime.LockOSThread()
		}
		for x := range a {
			b <- x
		}
		close(b)
	}()
	if kind == "" {
		runtime.LockOSThread()
	}
	for i := 0; i < n; i++ {
		a <- i
		<-b
	}
	close(a)
}
