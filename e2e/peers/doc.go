// Package peers holds that fini takes the place of tini, dumb-init and catatonit, by the cases of their own suites.
package peers
