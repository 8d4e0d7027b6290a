// Short parallel regions of OpenMP: regions COUNT ITEMS.
#include <stdlib.h>

static double of[4096];

int main(int argc, char **argv)
{
	int count = atoi(argv[1]), items = atoi(argv[2]);
	double sum = 0;

	for (int i = 0; i < count; i++) {
#pragma omp parallel for reduction(+ : sum)
		for (int j = 0; j < items; j++)
			sum += of[j & 4095] * i + j;
	}
	return sum == argc;
}
