// llama.cpp as a peer of compute/engine/bench_batching.py: one JSON line in (a job), one out (what it wrote, and when).
//   node bench_llama.mjs FOLDER MODEL.gguf THREADS SEQUENCES CONTEXT      FOLDER holds node_modules/node-llama-cpp
import {createInterface} from "node:readline";
import {join} from "node:path";
import {pathToFileURL} from "node:url";

const [folder, file, threads, sequences, context] = process.argv.slice(2);
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(join(folder, "node_modules/node-llama-cpp/dist/index.js")));
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: LlamaLogLevel.error, maxThreads: Number(threads)});
const model = await llama.loadModel({modelPath: file});
const room = await model.createContext({
    threads: {ideal: Number(threads), min: Number(threads)}, sequences: Number(sequences), contextSize: Number(context), batchSize: 512,
    experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
});
const idle = Array.from({length: Number(sequences)}, () => room.getSequence());

async function write(sequence, {prompt, limit}) {
    const tokens = [], times = [];
    await sequence.clearHistory();
    for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
        times.push(performance.now());
        tokens.push(token);
        if (tokens.length === limit)
            break;
    }
    return {tokens, first: times[0], last: times.at(-1)};
}

// jobs: [{prompt, limit}, …], of which so many run together as there are free sequences
async function run(jobs) {
    const texts = [], began = performance.now();
    let next = 0;
    await Promise.all(idle.slice(0, jobs.together).map(async (sequence) => {
        for (let at = next++; at < jobs.requests.length; at = next++)
            texts[at] = await write(sequence, jobs.requests[at]);
    }));
    return {seconds: (performance.now() - began) / 1000, texts: texts.map((t) => t.tokens), decoding: texts.map((t) => (t.last - t.first) / 1000)};
}

console.log(JSON.stringify({ready: true}));
for await (const line of createInterface({input: process.stdin}))
    console.log(JSON.stringify(await run(JSON.parse(line))));
process.exit(0);
