package audit

import (
	"fmt"
	"io/fs"
)

// checkKeyFile relies on the ACL that the file inherits from the user's folder.
func checkKeyFile(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file (%s)", info.Mode().Type())
	}
	return nil
}
