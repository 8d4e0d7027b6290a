// What SPEC's libquantum does most of its time, by Debian's libquantum: gates that go through a register of basis states from end to end, again
// and again, 16 bytes a state. 2^19 states are 8 MB: more than the last-level cache of Table V.
#include <quantum.h>

enum { QUBITS = 19, WIDTH = 24 };

int main(void)
{
    quantum_reg reg = quantum_new_qureg(0, WIDTH);
    for (int qubit = 0; qubit < QUBITS; qubit++)
        quantum_hadamard(qubit, &reg);
    // As the adders of the modular exponentiation do it (Shor's algorithm).
    for (int round = 0; round < 1000; round++) {
        for (int qubit = 0; qubit + 2 < QUBITS; qubit++) {
            quantum_toffoli(qubit, qubit + 1, WIDTH - 1, &reg);
            quantum_cnot(qubit, WIDTH - 2, &reg);
            quantum_sigma_x(WIDTH - 3, &reg);
        }
    }
    quantum_delete_qureg(&reg);
    return 0;
}
