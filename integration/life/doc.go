// Package life attacks the life of sessions: it kills them at every point and looks for what is left,
// leaves out one wall after the other and wants a refusal, opens many at once, and feeds them bad trees.
//
// Nobody may import it; the tests in it start integration/life/driver, a supervisor that can be killed.
// What does not belong here: attacks from inside the wall, which are in integration/walls.
package life
