// What library_test loads in the place of the real library.

#ifdef WEFT_OTHER_VERSION
extern "C" const void* weft_cuda_plugin(int) { return nullptr; }
#else
extern "C" int weft_something_else() { return 1; }
#endif
