package main

import (
	"net"
	"sync"
)

func main() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() {
		for {
			c, e := l.Accept()
			if e != nil {
				return
			}
			go func() {
				b := make([]byte, 64)
				for {
					n, e := c.Read(b)
					if e != nil {
						return
					}
					c.Write(b[:n])
				}
			}()
		}
	}()
	var w sync.WaitGroup
	for i := 0; i < 8; i++ {
		w.Add(1)
		go func() {
			defer w.Done()
			c, _ := net.Dial("tcp", l.Addr().String())
			b := make([]byte, 64)
			for i := 0; i < 6000; i++ {
				c.Write(b[:32])
				c.Read(b)
			}
			c.Close()
		}()
	}
	w.Wait()
}
