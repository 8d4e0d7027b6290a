const {Worker, isMainThread, workerData} = require('worker_threads');
const n = 60000;
const play = (a, me) => {
    for (let i = 0; i < n; i++) {
        while (Atomics.load(a, 0) !== me) Atomics.wait(a, 0, 1 - me);
        Atomics.store(a, 0, 1 - me);
        Atomics.notify(a, 0);
    }
};
if (isMainThread) {
    const a = new Int32Array(new SharedArrayBuffer(4));
    new Worker(__filename, {workerData: a});
    setTimeout(() => play(a, 0), 50);
} else
    play(workerData, 1);
