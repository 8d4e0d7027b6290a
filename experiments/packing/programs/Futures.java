import java.util.concurrent.*;
public class Futures { public static void main(String[] x) throws Exception {
  var pool = Executors.newFixedThreadPool(2); long sum = 0;
  for (int i = 0; i < 60000; i++) { int n = i; sum += pool.submit(() -> n * 2).get(); }
  pool.shutdown(); System.err.print(""); } }
