// Package house holds the rules of the house, as tests: which room may import which, which library
// belongs to which room, and the habits that a compiler does not know.
//
// A new arrow between two rooms is a new line in the table of imports_test.go, and is read in review
// there. The reasons stand beside the rules.
package house
