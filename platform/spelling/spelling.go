// Package spelling says how far apart two words are, so that an error can name what was meant.
//
// It may be imported by cmd/coworker/cli, platform/config and others that read a person's words. It
// must not decide what is near enough: that depends on the words.
package spelling

// Unlike is the Distance of words of which one is longer than any name here: the time is bounded, also
// for words from a file that nobody checked.
const Unlike = maxLength + 1

const maxLength = 64 // bytes

// Distance counts the bytes to insert, delete or replace (Levenshtein 1966).
func Distance(a, b string) int {
	if len(a) > maxLength || len(b) > maxLength {
		return Unlike
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
