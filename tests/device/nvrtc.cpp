/* The double of NVRTC, libnvrtc.so: what it makes of CUDA C++ is the text itself, which the double of the driver compiles.
 *
 * Like the real one it starts no program and opens no file but those that are included, so that it works behind a fence. It knows
 * nothing of C++ but lines of #include and #error. */
#include <cstdio>
#include <cstring>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum { SUCCESS = 0, INVALID_PROGRAM = 4, COMPILATION = 6 };
struct Program { std::string source, log, cubin; };

static bool opens(const std::string &path) {
  FILE *file = fopen(path.c_str(), "r");
  if (file != nullptr) fclose(file);
  return file != nullptr;
}

API nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, SUCCESS; }
API nvrtcCreateProgram(Program **program, const char *source, const char *, int headers, const char *const *, const char *const *) {
  if (headers != 0) return INVALID_PROGRAM;
  return *program = new Program{source, "", ""}, SUCCESS;
}
API nvrtcCompileProgram(Program *program, int count, const char *const *options) {
  static const std::regex including("\\s*#\\s*include\\s*[<\"]([^>\"]+)[>\"].*"), error("\\s*#\\s*error (.*)");
  std::vector<std::string> folders;
  for (int i = 0; i < count; i++)
    if (strncmp(options[i], "-I", 2) == 0) folders.push_back(options[i] + 2);
  std::istringstream lines(program->source);
  std::string line;
  for (int number = 1; std::getline(lines, line); number++) {
    std::smatch said;
    std::string where = "kernel.cu(" + std::to_string(number) + "): ";
    if (std::regex_match(line, said, including)) {
      std::string name = said[1];
      bool is_open = name[0] == '/' && opens(name);
      for (const std::string &folder : folders) is_open = is_open || opens(folder + "/" + name);
      if (!is_open) return program->log = where + "catastrophic error: cannot open source file \"" + name + "\"\n", COMPILATION;
    } else if (std::regex_match(line, said, error)) {
      return program->log = where + "error: #error directive: " + std::string(said[1]) + "\n", COMPILATION;
    }
  }
  program->cubin = "EMU-SOURCE\n" + program->source;
  program->cubin += '\0';
  return SUCCESS;
}
API nvrtcGetProgramLogSize(Program *program, size_t *size) { return *size = program->log.size() + 1, SUCCESS; }
API nvrtcGetProgramLog(Program *program, char *log) { return strcpy(log, program->log.c_str()), SUCCESS; }
API nvrtcGetCUBINSize(Program *program, size_t *size) { return *size = program->cubin.size(), SUCCESS; }
API nvrtcGetCUBIN(Program *program, char *cubin) { return memcpy(cubin, program->cubin.data(), program->cubin.size()), SUCCESS; }
API nvrtcDestroyProgram(Program **program) {
  delete *program;
  return *program = nullptr, SUCCESS;
}
