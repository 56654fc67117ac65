package session

import "strings"

// flagText makes a flag with a path fit to be shown and pasted into a shell. A program inside chose the path: what a shell would
// read as something else is quoted, and what cannot be shown as it is, is no flag.
func flagText(needed string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./[]-"
	flag, word, _ := strings.Cut(needed, " ")
	switch {
	case plainText(needed, maxNewsText) != needed || strings.Contains(word, "'") || strings.Trim(flag, plain) != "":
		return ""
	case strings.Trim(word, plain) == "":
		return needed
	}
	return flag + " '" + word + "'"
}
