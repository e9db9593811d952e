const pipeline = new Pipeline({ gate, rows: [{ topic: "tides" }, { topic: "locks" }] })
  .column("title", { calls: writer, fill: ({ topic }, task) => task.run((call) => ask(topic, call.signal)) })
  .column("length", { after: ["title"], fill: ({ title }) => title.length })
  .save(async (rows) => { await append(rows); });
const report = await pipeline.run();
export {};
