package request

import (
	"errors"
	"fmt"
)

// ErrIncomplete asks for more bytes. What has been read so far is not refused yet, and is within the limits.
var ErrIncomplete = errors.New("request is incomplete")

// Refusal says why a request was not understood. Its connection is closed after the answer: where the next request would
// begin is not known.
type Refusal struct {
	Status int // HTTP status, RFC 9110 section 15
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

func bad(format string, args ...any) *Refusal {
	return &Refusal{Status: 400, Reason: fmt.Sprintf(format, args...)}
}
