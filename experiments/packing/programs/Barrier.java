import java.util.concurrent.*;
public class Barrier {
    public static void main(String[] x) throws Exception {
        var b = new CyclicBarrier(2);
        Runnable r = () -> {
            try {
                for (int i = 0; i < 40000; i++) b.await();
            } catch (Exception e) {
            }
        };
        var t = new Thread(r);
        t.start();
        r.run();
        t.join();
    }
}
