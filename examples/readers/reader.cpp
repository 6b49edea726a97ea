// Call a program of `loca export` with ONNX Runtime, whose release is unpacked in $ONNXRUNTIME.
//
//     c++ -std=c++17 reader.cpp -I$ONNXRUNTIME/include -L$ONNXRUNTIME/lib -lonnxruntime -o reader
//     LD_LIBRARY_PATH=$ONNXRUNTIME/lib ./reader model.onnx mean.f32 u.f32 y.f32
//
// Files have numbers in single precision: mean (N, P, d_s), u (N, m, d_u) and y (P, d_y).
#include <onnxruntime_cxx_api.h>

#include <fstream>
#include <vector>

int main(int, char** argv) {
  Ort::Env env;
  Ort::Session session(env, argv[1], Ort::SessionOptions());
  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<std::vector<float>> values;
  std::vector<Ort::AllocatedStringPtr> names;
  std::vector<const char*> inputs;
  std::vector<Ort::Value> arrays;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    std::ifstream file(argv[3 + i], std::ios::binary | std::ios::ate);
    auto& numbers = values.emplace_back(size_t(file.tellg()) / sizeof(float));
    file.seekg(0).read(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(float));
    auto type = session.GetInputTypeInfo(i);
    auto shape = type.GetTensorTypeAndShapeInfo().GetShape();  // the first size, of functions or queries, is free
    shape[0] = numbers.size();
    for (size_t axis = 1; axis < shape.size(); ++axis) shape[0] /= shape[axis];
    arrays.push_back(Ort::Value::CreateTensor<float>(memory, numbers.data(), numbers.size(), shape.data(), shape.size()));
    inputs.push_back(names.emplace_back(session.GetInputNameAllocated(i, allocator)).get());
  }
  const char* output = "mean";  // others: std, lower, upper
  auto found = session.Run(Ort::RunOptions(), inputs.data(), arrays.data(), arrays.size(), &output, 1);
  auto bytes = found[0].GetTensorTypeAndShapeInfo().GetElementCount() * sizeof(float);
  std::ofstream(argv[2], std::ios::binary).write(reinterpret_cast<const char*>(found[0].GetTensorData<float>()), bytes);
}
