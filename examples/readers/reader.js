// Call a program of `loca export` with ONNX Runtime in Node.
//
//     npm install onnxruntime-node
//     node reader.js model.onnx mean.f32 u.f32 y.f32
//
// Files have numbers in single precision: mean (N, P, d_s), u (N, m, d_u) and y (P, d_y).
const fs = require("node:fs");
const ort = require("onnxruntime-node");

async function main([model, output, ...files]) {
  const session = await ort.InferenceSession.create(model);
  const inputs = {};
  session.inputMetadata.forEach(({ name, shape }, i) => {
    const bytes = fs.readFileSync(files[i]);
    const numbers = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    const rest = shape.slice(1); // the first size, of functions or queries, is free
    const first = rest.reduce((count, size) => count / size, numbers.length);
    inputs[name] = new ort.Tensor("float32", numbers, [first, ...rest]);
  });
  const { mean } = await session.run(inputs, ["mean"]); // others: std, lower, upper
  fs.writeFileSync(output, Buffer.from(mean.data.buffer, mean.data.byteOffset, mean.data.byteLength));
}

main(process.argv.slice(2));
