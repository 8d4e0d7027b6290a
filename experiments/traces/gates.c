// What SPEC's libquantum does most of its time, by Debian's libquantum: gates that go through a register of basis
// states from end to end, again and again, at 16 bytes a state or more. 2^19 states are at least 8 MB: more than the
// last-level cache of Table V.
//
// The register is filled by hand: Hadamard gates would do it, but clear libquantum's hash table, hundreds of megabytes,
// at each.
#include <quantum.h>

enum { QUBITS = 20, WIDTH = 23 };

int main(void)
{
    quantum_reg reg = quantum_new_qureg_sparse(1 << QUBITS, WIDTH);
    for (int state = 0; state < 1 << QUBITS; state++)
        reg.state[state] = state;
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
