import java.util.concurrent.*;
public class Queue { public static void main(String[] x) throws Exception {
  var a = new SynchronousQueue<Integer>(); var b = new SynchronousQueue<Integer>();
  var t = new Thread(() -> {
   try { for (int i = 0; i < 60000; i++) b.put(a.take()); } catch (InterruptedException e) {}
  });
  t.start(); for (int i = 0; i < 60000; i++) { a.put(i); b.take(); } t.join(); } }
