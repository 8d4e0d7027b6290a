// Writes raw 4:2:0 frames for an encoder: a textured plane that moves, a square that moves the other way, a little
// noise. The same every time.
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 640, HEIGHT = 352 };

static unsigned noise(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 29;
}

static int texture(int x, int y) { return ((x * x + 3 * y * y) >> 7 ^ (x * y) >> 6) & 127; }

int main(int argc, char** argv)
{
    int frames = argc > 1 ? atoi(argv[1]) : 10;
    for (int frame = 0; frame < frames; frame++) {
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++) {
                int square = abs(x - 500 + 7 * frame) < 40 && abs(y - 100 - 3 * frame) < 40;
                putchar((square ? 200 : 30 + texture(x + 3 * frame, y + frame)) + (int)noise());
            }
        for (int at = 0; at < WIDTH * HEIGHT / 2; at++)
            putchar(128 + (at / 320 + frame) % 16);
    }
    return fflush(stdout) != 0;
}
