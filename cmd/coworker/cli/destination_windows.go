package cli

// nonBlocking has no meaning for files here.
const nonBlocking = 0
