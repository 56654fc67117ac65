// Package store keeps secrets: one file encrypted with age, and the key to it in the keyring of the person's session or,
// on machines without one, in a private file.
//
//	secrets.json   plain: where the key is and which; written once, with the store
//	secrets.age    the entries (platform/secret), replaced as a whole
//	secrets.key    the key, if it is a file
//	secrets.lock   held while one of the others is read or written
//
// Where the key is never changes silently: a store whose key cannot be had is an error, never a new store. What the file
// does not show is age: whoever can write the folder can put an older secrets.age back.
//
// cmd and the code that starts sessions may import it; nothing that runs behind walls or parses hostile bytes may. It must
// not learn what secrets are used for.
package store
