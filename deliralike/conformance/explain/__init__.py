"""Why a place differs: conventions as executable variants, and common causes."""
