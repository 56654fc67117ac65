package selfconfine

// The Landlock ABIs from which Apply takes each of these rights (Linux 5.13, 6.2 and 6.7).
const (
	filesABI    = 1
	truncateABI = 3
	tcpABI      = 4
)

// Lacking says which of its rights a process keeps after Apply on a kernel with this Landlock ABI, 0 being a kernel
// without Landlock. It is empty where nothing is lacking.
func Lacking(abi int) string {
	switch {
	case abi < filesABI:
		return "without Landlock in this kernel it keeps its user's rights to files, programs and TCP ports; limits and no_new_privs hold"
	case abi < truncateABI:
		return "Landlock of this kernel does not stop it from cutting off files that its user may write, nor from listening on TCP ports"
	case abi < tcpABI:
		return "Landlock of this kernel does not stop it from listening on TCP ports"
	}
	return ""
}
