const {Worker, isMainThread, parentPort} = require('worker_threads');
const n = 20000;
if (isMainThread) {
    const w = new Worker(__filename);
    let i = 0;
    w.on('message', () => {
        if (++i < n)
            w.postMessage(i);
        else
            w.terminate();
    });
    w.postMessage(0);
} else
    parentPort.on('message', (x) => parentPort.postMessage(x));
