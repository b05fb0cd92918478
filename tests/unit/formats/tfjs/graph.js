// What TensorFlow.js gives for a graph model in FOLDER with images.bin: node graph.js FOLDER ROWS COLUMNS OUTPUT
const tf = require('@tensorflow/tfjs');
const fs = require('fs');
const [folder, rows, columns, output] = [process.argv[2], +process.argv[3], +process.argv[4], process.argv[5]];

(async () => {
  await tf.setBackend('cpu');
  const {modelTopology, weightsManifest} = JSON.parse(fs.readFileSync(`${folder}/model.json`));
  const shards = weightsManifest.flatMap(group => group.paths).map(path => fs.readFileSync(`${folder}/${path}`));
  const weightData = new Uint8Array(Buffer.concat(shards)).buffer;
  const weightSpecs = weightsManifest.flatMap(group => group.weights);
  const model = await tf.loadGraphModel({load: async () => ({modelTopology, weightSpecs, weightData})});
  const bytes = fs.readFileSync(`${folder}/images.bin`);
  const numbers = new Float32Array(new Uint8Array(bytes).buffer);
  const given = model.execute(tf.tensor(numbers, [-1, rows, columns, 3].map(each => each < 0 ? numbers.length / rows / columns / 3 : each)), output);
  fs.writeFileSync(`${folder}/given.bin`, Buffer.from(given.dataSync().buffer));
})();
