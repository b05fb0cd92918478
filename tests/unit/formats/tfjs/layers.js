// Writes a layers model as TensorFlow.js does, and what it gives: node layers.js FOLDER ROWS COLUMNS
const tf = require('@tensorflow/tfjs');
const fs = require('fs');
const [folder, rows, columns] = [process.argv[2], +process.argv[3], +process.argv[4]];

function network() {
  const L = tf.layers;
  const conv = (x, filters, more) => L.conv2d({filters, kernelSize: 3, ...more}).apply(x);
  const image = tf.input({shape: [rows, columns, 3]});
  let x = conv(image, 8, {strides: 2, padding: 'same', useBias: false});
  x = L.reLU({maxValue: 6}).apply(L.batchNormalization({}).apply(x));
  x = L.depthwiseConv2d({kernelSize: 3, padding: 'same', depthMultiplier: 2}).apply(x);
  x = L.leakyReLU({alpha: 0.1}).apply(L.zeroPadding2d({padding: [[0, 1], [1, 0]]}).apply(x));
  x = L.maxPooling2d({poolSize: 3, strides: 2, padding: 'same'}).apply(x);
  let y = L.prelu({sharedAxes: [1, 2], alphaInitializer: 'randomUniform'}).apply(conv(x, 16, {padding: 'same', activation: 'elu'}));
  x = L.concatenate().apply([L.add().apply([x, y]), L.averagePooling2d({poolSize: 3, strides: 1, padding: 'same'}).apply(y)]);
  x = L.separableConv2d({filters: 12, kernelSize: 3, padding: 'valid', activation: 'tanh'}).apply(x);
  x = L.conv2dTranspose({filters: 6, kernelSize: 3, strides: 2, padding: 'same'}).apply(x);
  x = L.activation({activation: 'sigmoid'}).apply(L.upSampling2d({size: [2, 2]}).apply(x));
  const inner = tf.sequential({layers: [L.conv2d({filters: 4, kernelSize: 1, inputShape: x.shape.slice(1)}), L.flatten()]});
  x = L.dropout({rate: 0.3}).apply(inner.apply(x));
  return tf.model({inputs: image, outputs: L.dense({units: 5, activation: 'softmax'}).apply(x)});
}

(async () => {
  await tf.setBackend('cpu');
  const model = network();
  model.setWeights(model.getWeights().map((each, place) => {
    const name = model.weights[place].name;
    const noise = tf.randomNormal(each.shape, 0, 0.3, 'float32', place + 1);
    return /variance/.test(name) ? noise.abs().add(0.5) : /gamma/.test(name) ? noise.add(1) : /bias|beta|mean|alpha/.test(name) ? noise : each;
  }));
  await model.save(tf.io.withSaveHandler(async made => {
    const weightsManifest = [{paths: ['group1-shard1of1.bin'], weights: made.weightSpecs}];
    const {modelTopology, format, generatedBy, convertedBy} = made;
    fs.writeFileSync(`${folder}/model.json`, JSON.stringify({modelTopology, format, generatedBy, convertedBy, weightsManifest}));
    fs.writeFileSync(`${folder}/group1-shard1of1.bin`, Buffer.from(made.weightData));
    return {modelArtifactsInfo: {dateSaved: new Date(), modelTopologyType: 'JSON'}};
  }));
  const images = tf.randomNormal([2, rows, columns, 3], 0, 1, 'float32', 7);
  fs.writeFileSync(`${folder}/images.bin`, Buffer.from(images.dataSync().buffer));
  fs.writeFileSync(`${folder}/given.bin`, Buffer.from(model.predict(images).dataSync().buffer));
})();
