package atomicfile

// syncDir has nothing to do: FlushFileBuffers does not take directories, and
// NTFS journals the change of the name.
func syncDir(string) error { return nil }
