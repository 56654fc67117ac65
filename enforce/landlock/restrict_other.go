//go:build !linux

package landlock

import "fmt"

// ABI reports that there is no Landlock here.
func ABI() (int, error) { return 0, fmt.Errorf("%w: it is part of Linux", ErrNotBuilt) }

// Restrict reports that there is no Landlock here.
func Restrict(r Rules) (Applied, error) {
	if err := r.check(); err != nil {
		return Applied{}, err
	}
	_, err := ABI()
	return Applied{}, err
}
