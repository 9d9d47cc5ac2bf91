// Package peers holds that fini replaces tini, dumb-init and catatonit without a change of arguments, by the
// cases of their own suites.
package peers
